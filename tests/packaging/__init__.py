"""What leaves the checkout: the lock, the wheel, the image."""
