-- Writes schedules by compare-and-set, one after the other.
-- request: rows of {member, path, expected version or false, fields, wake_at or false, format, updated_at, runs, skipped, cancels,
-- records or nil, records to delete or nil, record to change or nil}.
-- Returns for each: 1, or {the present row, 1 if all of the runs exist}.

need_for_runs()
need('zset', 'schedules', 'changed')
for _, row in ipairs(request) do
  need('zset', 'due' .. family_of(row[6]))
  if not (can_follow(row[2], row[8], row[9]) and can_add_records(row[11]) and can_add_records(row[13] and { row[13] })) then
    error('REFUSED ' .. wrong, 0)
  end
end

local answers = {}
for at, row in ipairs(request) do
  local member, path, expect = row[1], row[2], row[3]
  local key = base .. 'schedules:' .. path
  local is_hash = fits(key, 'hash')
  local found = is_hash and call('HMGET', key, 'generation', 'revision', 'fire_seq', 'format') or {}
  local same
  if not is_hash then
    same = false
  elseif expect then
    same = (count_of(found[1]) or '0') == expect[1] and (count_of(found[2]) or '0') == expect[2]
      and (count_of(found[3]) or '0') == expect[3]
  else
    same = not found[2]
  end
  if same and row[13] then same = change_record(row[13]) end
  if same then
    call('HSET', key, unpack(row[4]))
    place(base .. 'schedules', member, 0)
    place(base .. 'changed', member, row[7])
    local before, after = family_of(found[4]), family_of(row[6])
    if before ~= after then place(base .. 'due' .. before, member, false) end
    place(base .. 'due' .. after, member, row[5])
    follow(path, member, row[8], row[9], row[10])
    add_records(row[11])
    drop_records(row[12])
    answers[at] = 1
  else
    local there = 1
    for _, run in ipairs(row[8]) do
      if call('EXISTS', base .. 'runs:' .. run[1]) == 0 then there = 0 end
    end
    answers[at] = { is_hash and call('HGETALL', key) or {}, there }
  end
end
flush()
return { now, answers }
