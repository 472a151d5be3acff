-- Finds records of a kind: one by (tenant, key), those of a tenant, or all. asked: {kind, tenant or false, key or false}.
-- Returns rows of {tenant, key, version, body, expires}, also of expired ones.

local kind, tenant, rows = asked[1], asked[2], {}
local function look(owner, name)
  local found = read('HMGET', record_key(kind, owner, name), 'version', 'body', 'expires')
  if found[1] then rows[#rows + 1] = { owner, name, found[1], found[2] or '', found[3] or '' } end
end
if asked[3] then
  look(tenant, asked[3])
else
  local from, to = '-', '+'
  if tenant then from, to = '[' .. tenant .. ' ', '(' .. tenant .. '!' end
  for _, member in ipairs(call('ZRANGEBYLEX', base .. 'kinds:' .. kind, from, to)) do
    local owner, name = match(member, '^([^ ]*) (.*)$')
    look(owner, name)
  end
end
return { now, rows }
