"""One answer in the making: what is known, real steps where these may run, variants that may pay."""
