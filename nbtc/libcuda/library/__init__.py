"""The libraries as files: an ELF writer, the code that each begins with, and shell scripts in place of compilers."""
