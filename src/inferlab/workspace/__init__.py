"""What lies behind the pages and the HTTP API: projects, the queue of jobs, and views of what was measured."""
