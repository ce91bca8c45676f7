"""The demo: four apps share this machine under Themis' auctions, in real processes."""
