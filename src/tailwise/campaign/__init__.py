"""The human loop: one folder with a ledger of what people said, rounds of images to label, and what is made of them."""
