"""How far consumer groups have got."""
