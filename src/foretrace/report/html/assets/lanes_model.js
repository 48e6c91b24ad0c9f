'use strict';
/* The rows of a lanes view, arranged for drawing: one sorted track per lane and depth, looked up by binary search. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  /** First position in [low, high) for which `past` holds; `high` where it never does. */
  function firstWhere(low, high, past) {
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (past(middle)) high = middle;
      else low = middle + 1;
    }
    return low;
  }

  /** The length of the union of spans. */
  function covered(spans) {
    spans.sort((a, b) => a[0] - b[0]);
    let total = 0;
    let reach = -Infinity;
    for (const [low, high] of spans) {
      if (high <= reach) continue;
      total += high - Math.max(low, reach);
      reach = high;
    }
    return total;
  }

  const PATIENCE = 24; // rows of one pixel column that are looked at one by one

  /** Rows, tracks, arrows and names; knows nothing of pixels but how wide one is. */
  foretrace.LanesModel = class LanesModel {
    constructor({ lanes, columns, names, labels, kinds, bands, arrows }) {
      Object.assign(this, { lanes, names, kinds });
      this.bands = bands || [];
      this.size = columns.start.length;
      this.start = columns.start;
      this.duration = columns.duration;
      this.lane = columns.lane;
      this.depth = columns.depth;
      this.name = columns.name;
      this.kind = columns.kind;
      this.event = columns.event || null;
      this.labels = labels || names;
      this.arrows = arrows || { from: new Uint32Array(0), to: new Uint32Array(0) };
      this._makeTracks();
      this._measureExtent();
      this._linked = null;
      this._rowOfEvent = null;
    }

    _makeTracks() {
      const { size, lane, depth, lanes } = this;
      this.depths = lanes.map((one) => Math.max(1, one.depth || 1));
      for (let row = 0; row < size; row++) {
        if (depth[row] >= this.depths[lane[row]]) this.depths[lane[row]] = depth[row] + 1;
      }
      this.firstTrack = new Uint32Array(lanes.length + 1);
      for (let i = 0; i < lanes.length; i++) this.firstTrack[i + 1] = this.firstTrack[i] + this.depths[i];
      const tracks = this.firstTrack[lanes.length];
      // A counting sort keeps the order of start inside each track.
      const begin = (this.trackBegin = new Uint32Array(tracks + 1));
      for (let row = 0; row < size; row++) begin[this.firstTrack[lane[row]] + depth[row] + 1]++;
      for (let i = 0; i < tracks; i++) begin[i + 1] += begin[i];
      const next = begin.slice();
      this.order = new Uint32Array(size);
      this.place = new Uint32Array(size);
      for (let row = 0; row < size; row++) {
        const at = next[this.firstTrack[lane[row]] + depth[row]]++;
        this.order[at] = row;
        this.place[row] = at;
      }
      // Start, end and accumulated duration by place: what drawing reads lies side by side.
      this.starts = new Float64Array(size);
      this.ends = new Float64Array(size);
      this.busy = new Float64Array(size + 1);
      for (let at = 0; at < size; at++) {
        const row = this.order[at];
        this.starts[at] = this.start[row];
        this.ends[at] = this.start[row] + this.duration[row];
        this.busy[at + 1] = this.busy[at] + this.duration[row];
      }
    }

    _measureExtent() {
      let low = Infinity;
      let high = -Infinity;
      for (let at = 0; at < this.size; at++) {
        if (this.starts[at] < low) low = this.starts[at];
        if (this.ends[at] > high) high = this.ends[at];
      }
      for (const band of this.bands) {
        low = Math.min(low, band.start);
        high = Math.max(high, band.end);
      }
      if (!(high > low)) {
        low = Number.isFinite(low) ? low : 0;
        high = low + 1;
      }
      this.extent = { start: low, end: high };
    }

    /** The end of a row. */
    end(row) {
      return this.start[row] + this.duration[row];
    }

    /** Places in `track` that a view [start, end] shows, as [first, last). */
    range(track, start, end) {
      const low = this.trackBegin[track];
      const high = this.trackBegin[track + 1];
      const first = firstWhere(low, high, (at) => this.ends[at] > start || this.starts[at] >= start);
      return [first, firstWhere(first, high, (at) => this.starts[at] > end)];
    }

    /**
     * Visit what a track shows: rows of at least a pixel one by one, narrower ones merged by pixel column.
     * @param {number} track
     * @param {{start: number, end: number}} view
     * @param {number} pixels that the view is wide
     * @param {(x0: number, x1: number, row: number, count: number, busy: number) => void} visit `x` in pixels from the
     *   view's start; `row` of a merged column is its longest; `busy` the share of the column that is covered
     */
    walk(track, view, pixels, visit) {
      const { starts, ends, busy, order } = this;
      const scale = pixels / (view.end - view.start);
      const [first, last] = this.range(track, view.start, view.end);
      let at = first;
      while (at < last) {
        const x0 = (starts[at] - view.start) * scale;
        const x1 = (ends[at] - view.start) * scale;
        if (x1 - x0 >= 1) {
          visit(x0, x1, order[at], 1, 1);
          at++;
          continue;
        }
        const column = Math.floor(x0);
        const limit = view.start + (column + 1) / scale;
        let after = at + 1;
        let longest = at;
        let length = ends[at] - starts[at];
        // Most columns hold a few rows; where they crowd, look ahead in growing strides.
        const patience = Math.min(last, at + PATIENCE);
        while (after < patience && starts[after] < limit) {
          const other = ends[after] - starts[after];
          if (other * scale >= 1) break;
          if (other > length) {
            longest = after;
            length = other;
          }
          after++;
        }
        if (after === at + PATIENCE && after < last && starts[after] < limit) {
          let stride = PATIENCE;
          while (after + stride < last && starts[after + stride] < limit) {
            after += stride;
            stride *= 2;
          }
          after = firstWhere(after, Math.min(last, after + stride + 1), (p) => starts[p] >= limit);
          if ((ends[after - 1] - starts[after - 1]) * scale >= 1) after--;
        }
        visit(column, column + 1, order[longest], after - at, Math.min(1, (busy[after] - busy[at]) * scale));
        at = after;
      }
    }

    /** The row of a track at `time`, or the nearest within `slack`; -1 for none. */
    rowAt(track, time, slack) {
      const [first, last] = this.range(track, time - slack, time + slack);
      let best = -1;
      let distance = Infinity;
      for (let at = first; at < Math.min(last, first + 64); at++) {
        const away = Math.max(0, this.starts[at] - time, time - this.ends[at]);
        if (away < distance) {
          best = this.order[at];
          distance = away;
        }
      }
      return best;
    }

    /** The rows that arrows tie to `row`: what launched it, and what it launched. */
    partners(row) {
      if (!this._linked) this._link();
      const { offsets, others } = this._linked;
      return others.subarray(offsets[row], offsets[row + 1]);
    }

    /**
     * The arrows of a row: its own, or those of the calls inside it.
     * @param {number} row
     * @param {number} most
     * @returns {Array<[number, number]>} launch and launched
     */
    ties(row, most) {
      const onGpu = this.lanes[this.lane[row]].side === 'gpu';
      const own = [...this.partners(row).subarray(0, most)].map((other) => (onGpu ? [other, row] : [row, other]));
      if (own.length || onGpu || !this.arrows.from.length) return own;
      const found = [];
      const end = this.end(row);
      // Rows are in order of lane, then start: what is inside follows.
      for (let inner = row + 1; inner < this.size && this.lane[inner] === this.lane[row]; inner++) {
        if (this.start[inner] >= end) break;
        if (this.depth[inner] <= this.depth[row]) continue;
        for (const other of this.partners(inner)) found.push([inner, other]);
        if (found.length >= most) break;
      }
      return found.slice(0, most);
    }

    _link() {
      const { from, to } = this.arrows;
      const offsets = new Uint32Array(this.size + 1);
      for (let i = 0; i < from.length; i++) {
        offsets[from[i] + 1]++;
        offsets[to[i] + 1]++;
      }
      for (let row = 0; row < this.size; row++) offsets[row + 1] += offsets[row];
      const next = offsets.slice();
      const others = new Uint32Array(2 * from.length);
      for (let i = 0; i < from.length; i++) {
        others[next[from[i]]++] = to[i];
        others[next[to[i]]++] = from[i];
      }
      this._linked = { offsets, others };
    }

    /** The row of an event of the file; -1 where it is not drawn. */
    rowOfEvent(event) {
      if (!this._rowOfEvent) {
        this._rowOfEvent = new Map();
        for (let row = 0; this.event && row < this.size; row++) this._rowOfEvent.set(this.event[row], row);
      }
      const row = this._rowOfEvent.get(Number(event));
      return row === undefined ? -1 : row;
    }

    /** The rows whose name or label holds `text`, whatever the case, in order of start. */
    search(text) {
      const wanted = text.trim().toLowerCase();
      if (!wanted) return new Uint32Array(0);
      const holds = (word) => word.toLowerCase().includes(wanted);
      const fits = this.names.map((name, i) => holds(name) || holds(this.labels[i]));
      const rows = [];
      for (let row = 0; row < this.size; row++) if (fits[this.name[row]]) rows.push(row);
      return Uint32Array.from(rows.sort((a, b) => this.start[a] - this.start[b] || a - b));
    }

    /** The row `step` places after `row` in its track, or -1. */
    neighbour(row, step) {
      const track = this.firstTrack[this.lane[row]] + this.depth[row];
      const at = this.place[row] + step;
      return at >= this.trackBegin[track] && at < this.trackBegin[track + 1] ? this.order[at] : -1;
    }

    /**
     * How long [start, end] is covered by rows: of each kind, and of any GPU lane; rows at the same time count once.
     * @returns {{kinds: Array<[number, number]>, gpu: number|null}} kinds by time, most first; `gpu` null without such lanes
     */
    busyIn(start, end) {
      const spans = new Map();
      const gpu = [];
      for (let lane = 0; lane < this.lanes.length; lane++) {
        const onGpu = this.lanes[lane].side === 'gpu';
        for (let track = this.firstTrack[lane]; track < this.firstTrack[lane + 1]; track++) {
          const [first, last] = this.range(track, start, end);
          for (let at = first; at < last; at++) {
            const span = [Math.max(start, this.starts[at]), Math.min(end, this.ends[at])];
            if (span[1] <= span[0]) continue;
            const kind = this.kind[this.order[at]];
            if (!spans.has(kind)) spans.set(kind, []);
            spans.get(kind).push(span);
            if (onGpu) gpu.push(span);
          }
        }
      }
      const kinds = [...spans].map(([kind, list]) => [kind, covered(list)]);
      return {
        kinds: kinds.sort((a, b) => b[1] - a[1]),
        gpu: this.lanes.some((lane) => lane.side === 'gpu') ? covered(gpu) : null,
      };
    }
  };

  foretrace.firstWhere = firstWhere;
})();
