return {'ok', generation}
