'use strict';
/* Lanes: a canvas of rectangles in lanes over one axis, to zoom, search and select in. Timelines and memory maps. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  const MARGIN = 0.012; // of the whole range, left free at either end
  const EASE = 45; // ms in which a move by key covers most of its way

  foretrace.Lanes = class Lanes {
    /**
     * @param {HTMLElement} element that the view is put into
     * @param {object} options lanes [{title, subtitle, group, side, depth}], columns {lane, depth, start, duration, name,
     *   kind, event} with rows in order of lane then start, names, kinds; optional: labels (what is written into
     *   rectangles, like names), bands [{label, start, end}], arrows {from, to}, unit ('ns' or 'bytes'),
     *   colour(kind), label, details(row), onSelect(row), beforeSelect(row) (of every selection, not the reader's alone),
     *   folded (titles of the groups that are so at first), arrowsOf ('all', or 'chosen': of rows that stand out)
     *   Text is drawn as it is given: whoever makes the data spells unprintable characters out.
     */
    constructor(element, options) {
      this.options = options;
      this.model = new foretrace.LanesModel(options);
      this.layout = new foretrace.LanesLayout(this.model, options.folded);
      this.painter = new foretrace.LanesPainter(this.model, this.layout, (options.unit || 'ns') === 'ns');
      this.axis = foretrace.lanesAxis(options.unit || 'ns');
      const { start, end } = this.model.extent;
      const margin = (end - start) * MARGIN;
      this.full = { start: start - margin, end: end + margin };
      this.view = { ...this.full };
      this.target = { ...this.full };
      this.selected = -1;
      this.range = null;
      this.sets = { highlighted: new Uint32Array(0), found: new Uint32Array(0) };
      this.marks = new Uint32Array(0);
      this._build(element);
      this._watch();
      this._resize();
    }

    _build(element) {
      const make = foretrace.lanesElement;
      this.root = make('div', 'lanes');
      this.scroller = make('div', 'lanes-scroll');
      this.space = make('div', 'lanes-space');
      this.canvas = make('canvas', 'lanes-canvas');
      this.canvas.tabIndex = 0;
      this.canvas.setAttribute('role', 'application');
      this.canvas.setAttribute('aria-label', this.options.label || 'Timeline');
      this.heads = make('div', 'lanes-heads');
      this.buttons = [];
      this.cursor = make('div', 'lanes-cursor');
      this.cursor.hidden = true;
      this.frame = make('div', 'lanes-frame');
      element.append(this.root);
      this.palette = foretrace.lanesPalette(this.root, this.model.kinds, this.options.colour);
      this.panel = new foretrace.LanesPanel(this);
      this.overview = new foretrace.LanesOverview(this);
      this.space.append(this.canvas, this.heads);
      this.scroller.append(this.space);
      this.dock = make('div', 'lanes-heads');
      const stage = make('div', 'lanes-stage');
      stage.append(this.scroller, this.dock, this.cursor, this.panel.tipBox);
      const { bar, status, details, live } = this.panel;
      this.frame.append(this.overview.canvas, stage);
      this.root.append(bar, this.panel.help, this.frame, status, details, live);
      this.steps = new foretrace.LanesSteps(this);
      this.input = new foretrace.LanesInput(this);
      this.panel.showKinds();
    }

    _watch() {
      this.scroller.addEventListener('scroll', () => this.redraw());
      this.observer = new ResizeObserver(() => this._resize());
      this.observer.observe(this.root);
      const repaint = () => this.repaint();
      this.themes = new MutationObserver(repaint);
      this.themes.observe(document.documentElement, { attributes: true, attributeFilter: ['data-theme', 'class'] });
      const media = window.matchMedia('(prefers-color-scheme: dark)');
      media.addEventListener('change', repaint);
      const paper = (on) => {
        this.root.classList.toggle('lanes-paper', on);
        this.repaint();
        this._draw();
      };
      const [before, after, printed] = [() => paper(true), () => paper(false), (event) => paper(event.matches)];
      window.addEventListener('beforeprint', before);
      window.addEventListener('afterprint', after);
      const print = window.matchMedia('print');
      print.addEventListener('change', printed);
      this._unwatch = () => {
        media.removeEventListener('change', repaint);
        print.removeEventListener('change', printed);
        window.removeEventListener('beforeprint', before);
        window.removeEventListener('afterprint', after);
      };
    }

    /** Read the colours again and draw with them. */
    repaint() {
      this.palette = foretrace.lanesPalette(this.root, this.model.kinds, this.options.colour);
      this.overview.refresh();
      this.panel.showRange(this.range);
      this.panel.showDetails(this.selected);
      this.redraw();
    }

    _resize() {
      const width = this.root.clientWidth;
      if (!width) return; // in a part of the page that is not shown
      const most = Math.floor(parseFloat(getComputedStyle(this.scroller).maxHeight) || 640);
      this.layout.arrange(width, most);
      this.height = this.layout.view;
      this.space.style.height = `${this.layout.header + this.layout.height}px`;
      this.fullWidth = this.scroller.clientWidth; // less than before where a scroll bar came
      this.width = Math.max(10, this.fullWidth - this.layout.gutter);
      this.ratio = Math.max(1, window.devicePixelRatio || 1);
      this.canvas.width = Math.round(this.fullWidth * this.ratio);
      this.canvas.height = Math.round(this.height * this.ratio);
      this.canvas.style.width = `${this.fullWidth}px`;
      this.canvas.style.height = `${this.height}px`;
      this._placeHeads();
      this.overview.refresh();
      this._draw();
    }

    /** Buttons over the headings that the canvas draws, for pointers, keys and screen readers. */
    _placeHeads() {
      const { layout } = this;
      layout.groups.forEach((group, i) => {
        if (!group.height) return;
        if (!this.buttons[i]) this.buttons[i] = this._makeHead(i);
        const head = this.buttons[i];
        const docked = group.top >= layout.dockTop;
        const place = docked ? this.dock : this.heads;
        // Moving an element takes the focus from it.
        if (head.parentNode !== place) place.append(head);
        head.setAttribute('aria-expanded', String(!group.collapsed));
        head.style.top = `${docked ? layout.screen(group.top) : layout.header + group.top}px`;
        head.style.height = `${group.height}px`;
        head.style.width = layout.narrow ? '100%' : `${layout.gutter}px`;
      });
    }

    _makeHead(i) {
      const { title } = this.layout.groups[i];
      const head = foretrace.lanesElement('button', 'lanes-head');
      head.type = 'button';
      head.setAttribute('aria-label', title);
      head.addEventListener('click', () => {
        this.layout.toggle(title);
        this._resize();
        head.focus({ preventScroll: true });
      });
      return head;
    }

    /** Draw in the next frame of the browser. */
    redraw() {
      if (this._asked) return;
      this._asked = requestAnimationFrame((now) => {
        this._asked = 0;
        this._follow(now);
        this._draw();
      });
    }

    /** Let the view follow its target. */
    _follow(now) {
      const { view, target } = this;
      const passed = Math.min(64, now - (this._last || now - 16));
      const share = 1 - Math.exp(-passed / EASE);
      const near = Math.abs(target.start - view.start) + Math.abs(target.end - view.end) < (view.end - view.start) * 1e-4;
      if (near) {
        this._settle();
        return;
      }
      view.start += (target.start - view.start) * share;
      view.end += (target.end - view.end) * share;
      this._last = now;
      this.redraw();
    }

    _settle() {
      this._last = 0;
      Object.assign(this.view, this.target);
    }

    _draw() {
      if (!this.fullWidth) return;
      this.layout.scroll = this.scroller.scrollTop;
      const ctx = this.canvas.getContext('2d', { alpha: false });
      ctx.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      const shown = [...this.sets.highlighted.subarray(0, 300)];
      if (this.selected >= 0) shown.push(this.selected);
      const frame = {
        view: this.view,
        left: this.layout.gutter,
        width: this.width,
        full: this.fullWidth,
        height: this.height,
        ratio: this.ratio,
        palette: this.palette,
        marks: this.marks,
        selected: this.selected,
        range: this.range,
        shown,
        all: this.options.arrowsOf !== 'chosen',
      };
      foretrace.drawLanes(ctx, frame, this.model, this.layout, this.painter, this.axis);
      this.overview.draw(this.palette);
    }

    /** Show [start, end], kept within the whole range. */
    moveTo(start, end, atOnce = false) {
      const { full } = this;
      const whole = full.end - full.start;
      const span = Math.min(whole, Math.max(this.axis.finest, end - start));
      const middle = (start + end) / 2;
      let from = end - start < this.axis.finest || end - start > whole ? middle - span / 2 : start;
      from = Math.max(full.start, Math.min(full.end - span, from));
      this.target.start = from;
      this.target.end = from + span;
      if (atOnce || this.calm()) this._settle();
      this.redraw();
    }

    /** Whether the reader asked for no motion. */
    calm() {
      return window.matchMedia('(prefers-reduced-motion: reduce)').matches;
    }

    /** Make the view `factor` times as long, the point `time` staying where it is. */
    zoomBy(factor, time, atOnce = false) {
      const { start, end } = this.target;
      const whole = this.full.end - this.full.start;
      const span = Math.min(whole, Math.max(this.axis.finest, (end - start) * factor));
      const share = (time - this.view.start) / (this.view.end - this.view.start);
      const from = time - share * span;
      this.moveTo(from, from + span, atOnce);
    }

    /** Move the view by a share of its length. */
    pan(share, atOnce = false) {
      const { start, end } = this.target;
      const by = (end - start) * share;
      this.moveTo(start + by, end + by, atOnce);
    }

    zoomTo(start, end) {
      this.moveTo(start, end);
    }

    reset() {
      this.moveTo(this.full.start, this.full.end);
    }

    /** Whether nothing is outside the view; then the wheel scrolls the page again. */
    showsAll() {
      return this.target.end - this.target.start >= this.full.end - this.full.start;
    }

    middle() {
      return (this.target.start + this.target.end) / 2;
    }

    timeAt(x) {
      return this.view.start + ((x - this.layout.gutter) / this.width) * (this.view.end - this.view.start);
    }

    rowAt(x, y) {
      if (x < this.layout.gutter || y < this.layout.header) return -1;
      const track = this.layout.trackAt(this.layout.unscreen(y));
      if (track < 0) return -1;
      return this.model.rowAt(track, this.timeAt(x), (3 * (this.view.end - this.view.start)) / this.width);
    }

    /** Select as a reader does: tells the page. */
    choose(row, { reveal = false } = {}) {
      this.select(row, { reveal });
      if (this.options.onSelect) this.options.onSelect(row);
    }

    /**
     * Select a row (-1: none), show its details and bring it into sight.
     * @param {number} row
     * @param {{zoom?: boolean, reveal?: boolean}} how `zoom`: make it fill a good part of the view; `reveal`: move the
     *   view to it where it is outside or too small to see
     */
    select(row, { zoom = false, reveal = false } = {}) {
      this.selected = row >= 0 && row < this.model.size ? row : -1;
      if (this.options.beforeSelect) this.options.beforeSelect(this.selected);
      this.panel.showDetails(this.selected);
      if (this.selected >= 0) {
        const { model } = this;
        const lane = model.lanes[model.lane[row]];
        this.panel.say(`${model.labels[model.name[row]]}, ${this.axis.length(model.duration[row])}, ${lane.title}`);
        if (zoom) this.steps.zoomTo(row);
        else if (reveal) this.steps.reveal(row);
        this.steps.scrollTo(row);
      }
      this.redraw();
    }

    /** Titles of the groups that are folded. */
    folded() {
      return [...this.layout.collapsed];
    }

    /** Unfold the groups that rows lie in. */
    unfold(rows) {
      const { collapsed } = this.layout;
      const many = collapsed.size;
      if (many) for (const row of rows) collapsed.delete(this.model.lanes[this.model.lane[row]].group);
      if (collapsed.size < many) this._resize();
    }

    setRange(range) {
      this.range = range;
      if (!range) this.panel.showRange(null);
      this.redraw();
    }

    tellRange() {
      this.panel.showRange(this.range);
    }

    /** Let a set of rows stand out; an empty one ends it. */
    highlight(rows) {
      this.mark('highlighted', Uint32Array.from(rows).filter((row) => row < this.model.size));
    }

    mark(set, rows) {
      if (!rows.length && !(this.sets[set] || rows).length) return;
      this.sets[set] = rows;
      const places = new Set();
      for (const list of Object.values(this.sets)) for (const row of list) places.add(this.model.place[row]);
      this.marks = Uint32Array.from(places).sort();
      this.redraw();
    }

    /** Clear selection, search, highlight and range. */
    clear() {
      this.panel.input.value = '';
      this.panel.find('');
      this.panel.switchKind(null);
      this.highlight([]);
      this.setRange(null);
      this.panel.help.hidden = true;
      this.choose(-1);
    }

    rowOfEvent(event) {
      return this.model.rowOfEvent(event);
    }

    search(text) {
      return this.model.search(text);
    }

    /** Where the view is going to, and what stands out. */
    state() {
      const { start, end } = this.target;
      return { start, end, selected: this.selected, highlighted: [...this.sets.highlighted] };
    }

    /** The rectangles of a lane as drawn, in CSS pixels from the canvas's corner; `row` -1: several, merged. */
    visible(lane) {
      this._settle();
      this._draw();
      const { model, layout } = this;
      const found = [];
      if (!layout.lanes[lane].shown) return found;
      for (let track = model.firstTrack[lane]; track < model.firstTrack[lane + 1]; track++) {
        const y = layout.screen(layout.trackTop[track]);
        model.walk(track, this.view, this.width * this.ratio, (x0, x1, row, count) => {
          const [from, wide] = [x0 / this.ratio, Math.max(1, x1 - x0) / this.ratio];
          const place = { x: layout.gutter + from, y, width: wide, height: layout.trackHeight[track] };
          const one = { row, name: model.names[model.name[row]], start: model.start[row], duration: model.duration[row] };
          found.push(count === 1 ? { ...one, ...place } : { row: -1, count, ...place });
        });
      }
      return found;
    }

    destroy() {
      cancelAnimationFrame(this._asked);
      this.observer.disconnect();
      this.themes.disconnect();
      this._unwatch();
      this.root.remove();
    }
  };
})();
