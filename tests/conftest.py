"""`--hw`: what runs on nbtc's executor elsewhere runs on this machine's GPU."""


def pytest_addoption(parser):
    parser.addoption("--hw", action="store_true", help="run the comparisons with hardware on this machine's GPU")
