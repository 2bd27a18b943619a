"""Access tokens of OAUTHBEARER as JSON Web Tokens: parsing, keys, signatures, claims. No I/O."""
