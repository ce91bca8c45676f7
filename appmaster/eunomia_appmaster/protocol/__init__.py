"""The network protocol: protocol buffers and gRPC services, with the code generated from them."""
