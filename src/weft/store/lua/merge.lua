-- What settles nodes and frees those behind them. (after state)
--   child: its parent's position, number of parents, whether it wakes early, how many others it names, how many fields
--     it takes to decide it; its name; these others, these fields

-- Fix what a node sees, where it is not all that it asks for, and free it.
local function make_free(ex, name, node, complete, bits, others_from, others_to)
  if not complete or others_to >= others_from then
    local settled, all = {}, complete
    for index = others_from, others_to do
      local outcome = read(ex, ARGV[index])
      if outcome and not ex.nodes[ARGV[index]] and is_settled(outcome) then
        settled[#settled + 1] = ARGV[index]
      else
        all = false
      end
    end
    if not all then
      node[FLAGS] = node[FLAGS] + 2
      change(ex, 'v' .. name, bits .. table.concat(settled, ','))
    end
  end
  local not_before = node[REST] == NOTHING_YET and 0 or unpacked('<d', node[REST])
  free_in_time(ex, name, node, not_before)
end

local function arrive(ex, parent_settled)
  local position, parents, early, others, asked = unpacked('<I4I4BI2I2', ARGV[cursor])
  local name = ARGV[cursor + 1]
  local others_from = cursor + 2
  local asked_from = others_from + others
  cursor = asked_from + asked
  local child = parent_settled and node_of(ex, name)
  if not parent_settled or (child and child[PHASE] ~= 'w') then
    return
  elseif not child then
    if read(ex, name) then
      return
    end
    child = new_waiting()
  end
  local complete, bits = true, '\1'
  if parents > 1 then
    local not_before, arrived, rest = unpacked('<dI4', child[REST])
    bits = sub(child[REST], rest)
    if bits == '' then
      bits = string.rep('\0', math.ceil(parents / 8))
    end
    local place, bit = math.floor(position / 8) + 1, 2 ^ (position % 8)
    local old = byte(bits, place)
    if math.floor(old / bit) % 2 == 0 then
      bits = sub(bits, 1, place - 1) .. string.char(old + bit) .. sub(bits, place + 1)
      arrived = arrived + 1
    end
    complete = arrived == parents
    child[REST] = pack('<dI4', not_before, arrived) .. bits
    if not complete and early == 0 then
      put(ex, name, child)
      return
    end
  end
  make_free(ex, name, child, complete, bits, others_from, asked_from - 1)
  if asked > 0 then
    ex.asked = ex.asked or {}
    ex.asked[name] = {asked_from, asked_from + asked - 1}
  end
end

-- Settle a node that is not settled.
local function settle_as(ex, name, node, outcome, output)
  if node then
    leave_phase(ex, name, node)
    if has_view(node) then
      change(ex, 'v' .. name, false)
    end
  end
  ex.nodes[name] = false
  change(ex, name, outcome)
  if output ~= '' then
    change(ex, 'o' .. name, output)
  end
end

local function free_more(ex, children)
  local name = argument()
  local outcome = read(ex, name)
  local settled = outcome and not ex.nodes[name] and is_settled(outcome)
  for _ = 1, children do
    arrive(ex, settled)
  end
end
