// Layered layout of items of any size: layers from left to right, few crossings, straight dependencies, and
// long drawings folded into bands like lines of text. Pure and deterministic: the same input, the same drawing.
//
// The method is Sugiyama's in its simplest form that looks good. A link over several layers is led through a
// narrow waypoint in each layer between, so that it goes around the cards and not over them; the long links of one
// item share their waypoints, and branch off where they end. Sweeps sort each layer by the mean position of its neighbours; then each item moves as near to its neighbours as those above
// and below allow (isotonic regression). Each sweep is O(V + E) beside the sort of the items of a layer.

import { rowsBy } from "./topology.js";

const ORDER_SWEEPS = 6;
const HEIGHT_SWEEPS = 6;
// Larger drawings get fewer sweeps: nobody sees a crossing among ten thousand items.
const FEW_ITEMS = 20_000;
// Above this, long links are drawn straight: such a drawing is a texture.
const MAX_WAYPOINTS = 20_000;
const WAYPOINT_GAP = 12;
const GUTTER = 44;
const GUTTER_LANES = 6;
const GUTTER_STEP = 5;
// A drawing this many times wider than the page is folded.
const FOLD_FROM = 3.5;
const FOLD_LAYERS = 10;
// Many links from one band to the next are hard to follow: then only a far wider and longer drawing is folded.
const FEW_CROSSINGS = 12;
const FOLD_ALWAYS = 6;
const MANY_LAYERS = 24;

/**
 * @typedef {{
 *   count: number, from: Int32Array, to: Int32Array, layer: Int32Array, layers: number,
 *   width: Float32Array, height: Float32Array, gapX: number, gapY: number, aspect: number,
 * }} Sized
 *
 * Columns are the layers, in order; bands are runs of columns. `inColumn` lists the items of each column from
 * top to bottom. The bends of link i are points bendStart[i] … bendStart[i + 1] - 1.
 * @typedef {{
 *   x: Float32Array, y: Float32Array, width: number, height: number,
 *   columnX: Float32Array, columnWidth: Float32Array, columnStart: Int32Array, inColumn: Int32Array,
 *   bandStart: Int32Array, bandTop: Float32Array, bandBottom: Float32Array,
 *   bendStart: Int32Array, bendX: Float32Array, bendY: Float32Array, operations: number,
 * }} Placed
 *
 * Everything that is placed in a layer: items first, then the waypoints of each item.
 * @typedef {{
 *   items: number, total: number, column: Int32Array, size: Float32Array, wayStart: Int32Array,
 *   beforeStart: Int32Array, before: Int32Array, afterStart: Int32Array, after: Int32Array,
 *   columnStart: Int32Array, order: Int32Array, operations: number,
 * }} Work
 */

/**
 * Return the places of all items.
 * @param {Sized} sized
 * @returns {Placed}
 */
export function arrange(sized) {
  const work = workOf(sized);
  orderColumns(work);
  const y = heightsOf(work);
  return fold(sized, work, y);
}

/**
 * @param {Sized} sized
 * @returns {Work}
 */
function workOf(sized) {
  const { count, from, to, layer, layers } = sized;
  const reach = new Int32Array(count);
  for (let i = 0; i < from.length; i++) reach[from[i]] = Math.max(reach[from[i]], layer[to[i]] - layer[from[i]] - 1);
  const wayStart = new Int32Array(count + 1);
  for (let i = 0; i < count; i++) wayStart[i + 1] = wayStart[i] + reach[i];
  if (wayStart[count] > MAX_WAYPOINTS) {
    reach.fill(0);
    wayStart.fill(0);
  }
  const ways = wayStart[count];
  const total = count + ways;
  const column = new Int32Array(total);
  column.set(layer);
  const size = new Float32Array(total).fill(WAYPOINT_GAP);
  for (let i = 0; i < count; i++) size[i] = sized.height[i] + sized.gapY;
  const sources = new Int32Array(from.length + ways);
  const targets = new Int32Array(sources.length);
  let link = 0;
  for (let i = 0; i < count; i++) {
    for (let step = 0; step < reach[i]; step++) {
      const way = count + wayStart[i] + step;
      column[way] = layer[i] + 1 + step;
      sources[link] = step === 0 ? i : way - 1;
      targets[link++] = way;
    }
  }
  for (let i = 0; i < from.length; i++) {
    const steps = ways === 0 ? 0 : layer[to[i]] - layer[from[i]] - 1;
    sources[link] = steps <= 0 ? from[i] : count + wayStart[from[i]] + steps - 1;
    targets[link++] = to[i];
  }
  const [afterStart, after] = rowsBy(total, sources, targets);
  const [beforeStart, before] = rowsBy(total, targets, sources);
  const [columnStart, order] = rowsBy(layers, column, null);
  const operations = 3 * sources.length + 2 * total;
  return {
    ...{ items: count, total, column, size, wayStart, columnStart, order, operations },
    ...{ beforeStart, before, afterStart, after },
  };
}

/** @param {Work} work */
function orderColumns(work) {
  const { order, columnStart } = work;
  const position = new Float64Array(work.total);
  const wish = new Float64Array(work.total);
  const columns = columnStart.length - 1;
  for (let column = 0; column < columns; column++) number(work, column, position);
  const sweeps = work.total > FEW_ITEMS ? 2 : ORDER_SWEEPS;
  for (let sweep = 0; sweep < sweeps; sweep++) {
    const forward = sweep % 2 === 0;
    for (let step = 0; step < columns; step++) {
      const column = forward ? step : columns - 1 - step;
      const slice = order.subarray(columnStart[column], columnStart[column + 1]);
      for (const item of slice) wish[item] = mean(work, forward, item, position);
      slice.sort((a, b) => {
        work.operations++;
        return wish[a] - wish[b];
      });
      number(work, column, position);
    }
  }
}

/**
 * Number the items of a column from 0 to 1, so that those of a short and of a long column can be compared.
 * @param {Work} work
 * @param {number} column
 * @param {Float64Array} position
 */
function number({ order, columnStart }, column, position) {
  const first = columnStart[column];
  const many = columnStart[column + 1] - first;
  for (let place = 0; place < many; place++) position[order[first + place]] = (place + 0.5) / many;
}

/**
 * Return the mean of the values of an item's neighbours on one side; the item's own value if it has none.
 * @param {Work} work
 * @param {boolean} forward
 * @param {number} item
 * @param {Float64Array} values
 */
function mean(work, forward, item, values) {
  const start = forward ? work.beforeStart : work.afterStart;
  const neighbours = forward ? work.before : work.after;
  const first = start[item];
  const last = start[item + 1];
  if (first === last) return values[item];
  let sum = 0;
  for (let at = first; at < last; at++) sum += values[neighbours[at]];
  work.operations += last - first;
  return sum / (last - first);
}

/**
 * Return the height of the centre of each item and waypoint.
 * @param {Work} work
 */
function heightsOf(work) {
  const { columnStart } = work;
  const y = new Float64Array(work.total);
  const wish = new Float64Array(work.total);
  const columns = columnStart.length - 1;
  for (let column = 0; column < columns; column++) settle(work, column, wish, y);
  const sweeps = work.total > FEW_ITEMS ? 2 : HEIGHT_SWEEPS;
  for (let sweep = 0; sweep < sweeps; sweep++) {
    const forward = sweep % 2 === 0;
    for (let step = 0; step < columns; step++) {
      const column = forward ? step : columns - 1 - step;
      for (let at = columnStart[column]; at < columnStart[column + 1]; at++) {
        wish[work.order[at]] = mean(work, forward, work.order[at], y);
      }
      settle(work, column, wish, y);
    }
  }
  return y;
}

/**
 * Set the `y` of each item of a column as near to its wish (least squares) as order and distance allow.
 * @param {Work} work
 * @param {number} column
 * @param {Float64Array} wish
 * @param {Float64Array} y
 */
function settle(work, column, wish, y) {
  const { order, size, columnStart } = work;
  const first = columnStart[column];
  const many = columnStart[column + 1] - first;
  const offset = new Float64Array(many);
  const means = new Float64Array(many);
  const sizes = new Int32Array(many);
  let blocks = 0;
  for (let place = 0; place < many; place++) {
    const item = order[first + place];
    if (place > 0) offset[place] = offset[place - 1] + (size[order[first + place - 1]] + size[item]) / 2;
    let blockMean = wish[item] - offset[place];
    let items = 1;
    while (blocks > 0 && means[blocks - 1] > blockMean) {
      blocks--;
      blockMean = (blockMean * items + means[blocks] * sizes[blocks]) / (items + sizes[blocks]);
      items += sizes[blocks];
      work.operations++;
    }
    means[blocks] = blockMean;
    sizes[blocks++] = items;
  }
  let place = 0;
  for (let block = 0; block < blocks; block++) {
    for (let i = 0; i < sizes[block]; i++, place++) y[order[first + place]] = means[block] + offset[place];
  }
  work.operations += many;
}

/**
 * Return where each band begins, as columns. A drawing much wider than the page is cut into bands of about the
 * same width, where the fewest links cross.
 * @param {Sized} sized
 * @param {Float32Array} advance the width of each column with its gap
 * @param {number} height
 */
export function bandsOf(sized, advance, height) {
  const columns = advance.length;
  const width = advance.reduce((sum, one) => sum + one, 0);
  const ratio = width / (height + GUTTER) / sized.aspect;
  const whole = Int32Array.of(0);
  if (ratio < FOLD_FROM || columns < FOLD_LAYERS) return whole;
  const crossing = new Int32Array(columns + 1);
  for (let i = 0; i < sized.from.length; i++) {
    crossing[sized.layer[sized.from[i]] + 1]++;
    crossing[sized.layer[sized.to[i]] + 1]--;
  }
  for (let i = 1; i <= columns; i++) crossing[i] += crossing[i - 1];
  const bands = Math.min(Math.max(2, Math.round(Math.sqrt(ratio))), Math.floor(columns / 3));
  const starts = [0];
  let at = 0;
  let sum = 0;
  for (let column = 0; column < columns && starts.length < bands; column++) {
    sum += advance[column];
    if (sum < (width * starts.length) / bands) continue;
    const slack = Math.floor((columns / bands) * 0.15);
    let best = column + 1;
    for (let other = Math.max(at + 2, best - slack); other <= Math.min(columns - 1, best + slack); other++) {
      const gain = crossing[other] - crossing[best];
      if (gain < 0 || (gain === 0 && Math.abs(other - column - 1) < Math.abs(best - column - 1))) best = other;
    }
    if (best >= columns) break;
    if (crossing[best] > FEW_CROSSINGS && (ratio < FOLD_ALWAYS || columns < MANY_LAYERS)) return whole;
    starts.push(best);
    at = best;
  }
  return Int32Array.from(starts);
}

/**
 * @param {Sized} sized
 * @param {Work} work
 * @param {Float64Array} y
 * @returns {Placed}
 */
function fold(sized, work, y) {
  const { items, columnStart, order, size } = work;
  const columns = columnStart.length - 1;
  const columnWidth = new Float32Array(columns);
  for (let i = 0; i < items; i++) {
    columnWidth[sized.layer[i]] = Math.max(columnWidth[sized.layer[i]], sized.width[i]);
  }
  const top = new Float32Array(columns).fill(Infinity);
  const bottom = new Float32Array(columns).fill(-Infinity);
  for (let item = 0; item < work.total; item++) {
    top[work.column[item]] = Math.min(top[work.column[item]], y[item] - size[item] / 2);
    bottom[work.column[item]] = Math.max(bottom[work.column[item]], y[item] + size[item] / 2);
  }
  const advance = columnWidth.map((one) => one + sized.gapX);
  const height = columns === 0 ? 0 : lowest(bottom, 0, columns) - highest(top, 0, columns);
  const bandStart = bandsOf(sized, advance, height);
  const bands = bandStart.length;
  const columnX = new Float32Array(columns);
  const shift = new Float32Array(columns);
  const bandTop = new Float32Array(bands);
  const bandBottom = new Float32Array(bands);
  let width = 0;
  let ground = 0;
  for (let band = 0; band < bands; band++) {
    const end = band + 1 < bands ? bandStart[band + 1] : columns;
    if (band > 0) ground += GUTTER;
    let x = 0;
    const up = highest(top, bandStart[band], end);
    for (let column = bandStart[band]; column < end; column++) {
      columnX[column] = x;
      shift[column] = ground - up;
      x += advance[column];
    }
    width = Math.max(width, x - sized.gapX);
    bandTop[band] = ground;
    ground += columns === 0 ? 0 : lowest(bottom, bandStart[band], end) - up;
    bandBottom[band] = ground;
  }
  const x = new Float32Array(items);
  const itemY = new Float32Array(items);
  for (let i = 0; i < items; i++) {
    const column = sized.layer[i];
    x[i] = columnX[column] + (columnWidth[column] - sized.width[i]) / 2;
    itemY[i] = y[i] + shift[column] - sized.height[i] / 2;
  }
  const inColumn = order.filter((item) => item < items);
  const [itemStart] = rowsBy(columns, sized.layer, null);
  const placed = {
    ...{ x, y: itemY, width: Math.max(0, width), height: ground, columnX, columnWidth, columnStart: itemStart },
    ...{ inColumn, bandStart, bandTop, bandBottom, operations: work.operations },
  };
  return { ...placed, ...bendsOf(sized, work, y, placed, shift) };
}

/**
 * @param {Float32Array} values
 * @param {number} from
 * @param {number} to
 */
function highest(values, from, to) {
  let best = Infinity;
  for (let i = from; i < to; i++) best = Math.min(best, values[i]);
  return best;
}

/**
 * @param {Float32Array} values
 * @param {number} from
 * @param {number} to
 */
function lowest(values, from, to) {
  let best = -Infinity;
  for (let i = from; i < to; i++) best = Math.max(best, values[i]);
  return best;
}

/**
 * Return the points between both ends of each link: through its waypoints, and through the gutter to the next band.
 * @param {Sized} sized
 * @param {Work} work
 * @param {Float64Array} y
 * @param {Omit<Placed, "bendStart" | "bendX" | "bendY">} placed
 * @param {Float32Array} shift
 */
function bendsOf(sized, work, y, placed, shift) {
  const { from, to, layer, gapX } = sized;
  const { columnX, columnWidth, bandStart, bandTop } = placed;
  const bandOf = new Int32Array(columnX.length);
  for (let band = 0; band < bandStart.length; band++) bandOf.fill(band, bandStart[band]);
  // The links of one item share a lane of the gutter.
  const laneOf = new Int32Array(sized.count).fill(-1);
  let lanes = 0;
  const bendStart = new Int32Array(from.length + 1);
  /** @type {number[]} */
  const xs = [];
  /** @type {number[]} */
  const ys = [];
  for (let i = 0; i < from.length; i++) {
    let column = layer[from[i]];
    let height = y[from[i]] + shift[column];
    const points = [];
    const first = work.items + work.wayStart[from[i]];
    const steps = work.total === work.items ? 0 : layer[to[i]] - column - 1;
    for (let step = 0; step < steps; step++) points.push(first + step);
    points.push(to[i]);
    for (const point of points) {
      const next = work.column[point];
      const nextHeight = y[point] + shift[next];
      for (let band = bandOf[column] + 1; band <= bandOf[next]; band++) {
        if (laneOf[from[i]] < 0) laneOf[from[i]] = lanes++ % GUTTER_LANES;
        const lane = laneOf[from[i]] * GUTTER_STEP;
        const right = placed.width + gapX / 3 + lane;
        const left = -gapX / 3 - lane;
        const gutter = bandTop[band] - GUTTER / 2 + lane - (GUTTER_LANES * GUTTER_STEP) / 2;
        const down = band === bandOf[next] ? nextHeight : bandTop[band] - GUTTER / 2;
        xs.push(right, right, left, left);
        ys.push(height, gutter, gutter, down);
        height = down;
      }
      if (point >= work.items) {
        xs.push(columnX[next], columnX[next] + columnWidth[next]);
        ys.push(nextHeight, nextHeight);
      }
      column = next;
      height = nextHeight;
    }
    bendStart[i + 1] = xs.length;
  }
  return { bendStart, bendX: Float32Array.from(xs), bendY: Float32Array.from(ys) };
}
