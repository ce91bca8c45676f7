"""Themis: finish-time fairness by partial-allocation auctions (Mahajan et al., NSDI 2020)."""
