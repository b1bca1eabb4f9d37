"""Administration over HTTP: entities as Atom documents, as the vendor's administration clients ask
for them."""
