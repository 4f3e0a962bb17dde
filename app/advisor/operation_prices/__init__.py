"""What one operation costs under a plan, read off a profile: alone, inside a step, issued, on a device."""
