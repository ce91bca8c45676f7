"""The demo: four apps share this machine under Themis' auctions, as real processes."""
