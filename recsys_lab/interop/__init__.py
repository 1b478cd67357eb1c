"""TorchRec's plans and their JSON, read, made and priced; plans for a TorchRec model of the user's own."""
