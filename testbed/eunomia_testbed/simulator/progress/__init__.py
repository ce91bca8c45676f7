"""The true speed and progress of each job, which no plugin can see."""
