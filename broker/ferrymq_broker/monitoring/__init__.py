"""What a broker tells those who run it: metrics, whether it lives, whether it is ready."""
