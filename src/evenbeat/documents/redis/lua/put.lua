-- Sets fields of a document, as its owner does.
-- Arguments: {…, key, {field, value, …}, {field to clear, …}}. Returns {documents with invalid times}.

local key, values, cleared = arguments[2], arguments[3], arguments[4]
change(key, values, cleared)
enter(key, (read_due(key)))
return { invalid }
