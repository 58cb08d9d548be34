"""What a request costs as the amount of work grows: measured points and fitted exponents."""
