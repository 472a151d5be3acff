-- Finds the records of a kind that have not expired, in the order (tenant, key), a part of them at a time.
-- request: {kind, 1 if only those of the tenant at the position, first key, the key to end before or false, how many to read, how
-- many to find, position: tenant or nil, the bound to read from}. Without a tenant, the bound precedes the next tenant: a
-- search in all tenants reads the range of keys of each, not the keys between.
-- Returns {the position to continue at, or false at the end; rows of {tenant, key, version, body, expires}}.

local kind, alone, start, finish, left, most = request[1], request[2] == 1, request[3], request[4], request[5], request[6]
local owner, from = request[7], request[8]
local index, rows = base .. 'kinds:' .. kind, {}

local function collect(name)
  local found = read('HMGET', record_key(kind, owner, name), 'version', 'body', 'expires')
  if is_live(found[1], found[3]) then
    rows[#rows + 1] = { owner, name, found[1], found[2] or '', found[3] or '' }
  end
end

while left > 0 and #rows < most do
  if not owner then
    local following = call('ZRANGEBYLEX', index, from, '+', 'LIMIT', 0, 1)[1]
    if not following then return { now, false, rows } end
    owner = match(following, '^[^ ]*')
    from = '[' .. owner .. ' ' .. start
  end
  local to = '(' .. owner .. (finish and ' ' .. finish or '!')
  local room = math.min(left, most - #rows)
  local members = call('ZRANGEBYLEX', index, from, to, 'LIMIT', 0, room)
  for _, member in ipairs(members) do
    collect(sub(member, #owner + 2))
    from = '(' .. member
  end
  left = left - #members - 1
  if #members < room then
    if alone then return { now, false, rows } end
    owner, from = false, '[' .. owner .. '!'
  end
end
return { now, { owner, from }, rows }
