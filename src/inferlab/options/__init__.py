"""Every option, declared once: the command line, plan files, keywords of Python, HTTP requests, pages and copied
commands read these declarations. `plan`, `profile` and `version` declare, `option` and `kinds` say how."""
