-- Reads runs by id. request: {ids or false, the name of an index that contains them or false, a worker that holds them or
-- false, names of the fields to return or false for all}. Returns a row for each that exists.

local ids = request[1]
if not ids then
  if request[3] then
    ids = call('HKEYS', base .. 'held:' .. request[3])
  else
    ids = call('ZRANGE', base .. request[2], 0, -1)
  end
end
local rows = {}
for _, id in ipairs(ids) do
  local fields = run_fields(base .. 'runs:' .. id, request[4])
  if #fields > 0 then rows[#rows + 1] = fields end
end
return { now, rows }
