"""BARFI: learns how much a designer's auxiliary reward counts."""
