"""Messages that come at a time of their sender's choice: kept in a wheel of seconds until then."""
