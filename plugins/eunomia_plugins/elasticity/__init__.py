"""General-purpose elasticities, which give the sizes at which a job can run and its rate at each size."""
