"""The demo: four apps share this machine under Themis' auctions, everything by real processes."""
