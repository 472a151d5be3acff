-- Reads a record. asked: {kind, tenant, key}. Returns {version, body, expires}, or false if there is none.

local found = read('HMGET', record_key(asked[1], asked[2], asked[3]), 'version', 'body', 'expires')
return { now, is_live(found[1], found[3]) and { found[1], found[2] or '', found[3] or '' } or false }
