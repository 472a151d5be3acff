-- Adds runs. request: runs as add_run takes them. Returns 1 for each that is new, else 0.
-- A run takes 17 us of the server's time, 24 with the append-only file.

need_for_runs()
if not can_add_all(request) then error('WRONGTYPE ' .. wrong, 0) end
local answers = {}
for at, run in ipairs(request) do answers[at] = add_run(run) and 1 or 0 end
flush()
return { now, answers }
