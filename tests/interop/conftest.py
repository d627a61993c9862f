"""Tests of the doors to other tools run where the tool is installed."""

collect_ignore_glob = []

for package, files in (("torch", "test_torch*.py"), ("dask", "test_dask*.py")):
    try:
        __import__(package)
    except ImportError:
        collect_ignore_glob.append(files)
