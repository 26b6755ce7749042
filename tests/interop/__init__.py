"""Foreign clients against our servers, and our SDK against Apache's."""
