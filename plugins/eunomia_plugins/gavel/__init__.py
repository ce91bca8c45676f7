"""The Gavel family (OSDI'20): policies as optimization programmes over time shares, and rounds that realize them."""
