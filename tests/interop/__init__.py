"""Foreign clients with this project's servers, and this project's SDK with Apache's."""
