"""Tools that `make docs` builds and checks the site with."""
