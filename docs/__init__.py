"""The documentation, the scripts that write its generated pages, and the tools of its site."""
