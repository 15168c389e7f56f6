"""Small faults, planted one at a time: a promise counts as tested when breaking it is noticed."""
