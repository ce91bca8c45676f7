"""What the mutation check perturbs, on which snapshot, and what each stage reads, by family of policies."""
