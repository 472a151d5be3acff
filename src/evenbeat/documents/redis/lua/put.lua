-- Sets fields of a document, as its owner.
-- asked: {…, key, {field, value, …}, {field to clear, …}}. Answers {odd ones}.

local key, values, cleared = asked[2], asked[3], asked[4]
change(key, values, cleared)
enter(key, (look(key)))
return { odd }
