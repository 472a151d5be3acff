-- Lists the indexes of queued runs. request: nothing. Returns {queue, index} of each.

local found = {}
for _, suffix in ipairs(call('SMEMBERS', base .. 'queues')) do
  local queue = match(suffix, ':(.*)$')
  for _, member in ipairs(read('SMEMBERS', base .. 'waiting' .. suffix)) do
    found[#found + 1] = { queue, 'ready' .. suffix .. ':' .. member }
  end
end
return { now, found }
