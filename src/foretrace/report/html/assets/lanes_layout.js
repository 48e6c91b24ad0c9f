'use strict';
/* Where lanes lie on the canvas, and their colours. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  const RULER = 24;
  const BAND = 18;
  const HEADING = 24;
  const TITLE = 17; // above a lane, where there is no room beside it
  const GAP = 7;
  const ROW = 17;
  const TALL = 26;
  const GUTTER = 176;
  const NARROW = 620;

  const DOCKED = 0.45; // of the height that streams may keep at the bottom

  /**
   * Vertical places of headings, lanes and tracks; y counts from the top of the first heading. Where not all lanes fit,
   * those of the GPU stay in sight below the others, which scroll: `screen` tells where a y is on the canvas.
   */
  foretrace.LanesLayout = class LanesLayout {
    constructor(model, folded = []) {
      this.model = model;
      this.collapsed = new Set(folded);
      this.gutter = GUTTER;
      this.header = RULER + (model.bands.length ? BAND : 0);
      this.ruler = RULER;
      this.heading = HEADING;
      this.scroll = 0;
      this.arrange(1000, 1000);
    }

    /** Lay the lanes out for a canvas of this width and at most this height. */
    arrange(width, most) {
      const { model } = this;
      this.narrow = width < NARROW;
      this.gutter = this.narrow ? 0 : GUTTER;
      this.groups = [];
      this.lanes = [];
      this.trackTop = new Float64Array(model.trackBegin.length - 1).fill(NaN);
      this.trackHeight = new Float64Array(model.trackBegin.length - 1);
      let y = 0;
      let group = null;
      model.lanes.forEach((lane, i) => {
        if (!group || group.title !== lane.group) {
          group = { title: lane.group || '', top: y, height: lane.group ? HEADING : 0, lanes: [] };
          this.groups.push(group);
          y += group.height;
        }
        group.lanes.push(i);
        group.collapsed = this.collapsed.has(group.title);
        if (group.collapsed) {
          this.lanes.push({ top: group.top + 6, height: HEADING - 12, shown: false, group });
          return;
        }
        const depth = model.depths[i];
        const row = lane.side !== 'cpu' && depth <= 2 ? TALL : ROW;
        const top = y + (this.narrow ? TITLE : 3);
        for (let d = 0; d < depth; d++) {
          this.trackTop[model.firstTrack[i] + d] = top + d * row;
          this.trackHeight[model.firstTrack[i] + d] = row - 1;
        }
        const least = this.narrow ? 0 : 30;
        const height = Math.max(least, depth * row);
        this.lanes.push({ top, height, shown: true, group, from: y, to: top + height + GAP - 3 });
        y = top + height + GAP - 3;
      });
      this.height = y + 4;
      this.view = Math.min(this.header + this.height, most);
      this._dock();
    }

    _dock() {
      this.dockTop = this.height;
      this.dockHeight = 0;
      if (this.header + this.height <= this.view) return;
      const { groups, model } = this;
      let first = groups.length;
      while (first > 0 && groups[first - 1].lanes.every((i) => model.lanes[i].side === 'gpu')) first--;
      if (first === 0 || first === groups.length) return;
      const tall = this.height - groups[first].top;
      if (tall > DOCKED * (this.view - this.header)) return;
      this.dockTop = groups[first].top;
      this.dockHeight = tall;
    }

    /** What is on the canvas: {shift, top, bottom} in y, {from, to} on the canvas; the scrolled lanes, then the docked. */
    parts() {
      const edge = this.view - this.dockHeight;
      const top = this.scroll;
      const bottom = Math.min(this.dockTop, top + edge - this.header);
      const found = [{ shift: this.header - top, top, bottom, from: this.header, to: edge }];
      if (this.dockHeight) {
        found.push({ shift: edge - this.dockTop, top: this.dockTop, bottom: this.height, from: edge, to: this.view });
      }
      return found;
    }

    /** Where y is on the canvas. */
    screen(y) {
      return y >= this.dockTop ? y - this.dockTop + this.view - this.dockHeight : y + this.header - this.scroll;
    }

    /** The y of a place on the canvas. */
    unscreen(at) {
      const edge = this.view - this.dockHeight;
      return at >= edge ? at - edge + this.dockTop : at - this.header + this.scroll;
    }

    toggle(title) {
      if (!this.collapsed.delete(title)) this.collapsed.add(title);
    }

    /** Top (as y) and height of a row; of its group's heading where that is collapsed. */
    spot(row) {
      const { model } = this;
      const track = model.firstTrack[model.lane[row]] + model.depth[row];
      const lane = this.lanes[model.lane[row]];
      if (!lane.shown) return { top: lane.top, height: lane.height };
      return { top: this.trackTop[track], height: this.trackHeight[track] };
    }

    /** The track at a height, or -1. */
    trackAt(y) {
      const { model } = this;
      for (let i = 0; i < this.lanes.length; i++) {
        const lane = this.lanes[i];
        if (!lane.shown || y < lane.top || y >= lane.top + lane.height) continue;
        for (let track = model.firstTrack[i]; track < model.firstTrack[i + 1]; track++) {
          if (y >= this.trackTop[track] && y <= this.trackTop[track] + this.trackHeight[track]) return track;
        }
      }
      return -1;
    }
  };

  const FALLBACK = [262, 75, 165, 305, 15, 110, 200, 335, 45, 235];

  /** Any CSS colours as the bytes of pixels: 0x00BBGGRR. */
  function pixelsOf(colours) {
    const canvas = document.createElement('canvas');
    canvas.width = Math.max(1, colours.length);
    canvas.height = 1;
    const ctx = canvas.getContext('2d', { willReadFrequently: true });
    colours.forEach((colour, i) => {
      ctx.fillStyle = colour;
      ctx.fillRect(i, 0, 1, 1);
    });
    const { data } = ctx.getImageData(0, 0, canvas.width, 1);
    return colours.map((_, i) => data[4 * i] | (data[4 * i + 1] << 8) | (data[4 * i + 2] << 16));
  }

  /** The colours of a lanes view, read from its CSS properties. */
  foretrace.lanesPalette = (root, kinds, colour) => {
    const style = getComputedStyle(root);
    const read = (name) => style.getPropertyValue(name).trim();
    const lightness = Number(read('--lanes-lightness')) || 0.8;
    const chroma = Number(read('--lanes-chroma')) || 0.1;
    const fills = kinds.map((kind, i) => {
      const asked = colour && colour(kind);
      const named = /^var\((--[\w-]+)\)$/.exec(asked || '');
      const own = named ? read(named[1]) : asked;
      if (own) return [own, own, own];
      const slug = String(kind).toLowerCase().replace(/[^a-z0-9]+/g, '-');
      const [hue, strength] = (read(`--kind-${slug}`) || `${FALLBACK[i % FALLBACK.length]} 0.8`).split(/\s+/).map(Number);
      // Rows of one kind differ a little by name, so that neighbours stay apart and repetitions are seen.
      return [0, 0.032, -0.032].map((shift) => `oklch(${lightness + shift} ${chroma * strength} ${hue})`);
    });
    return {
      fills,
      rgb: pixelsOf(fills.flat()),
      ground: read('--lanes-ground'),
      gutter: read('--lanes-gutter'),
      heading: read('--lanes-heading'),
      ink: read('--lanes-ink'),
      soft: read('--lanes-soft'),
      grid: read('--lanes-grid'),
      band: read('--lanes-band'),
      edge: read('--lanes-edge'),
      accent: read('--lanes-accent'),
      mark: read('--lanes-mark'),
      arrow: read('--lanes-arrow'),
      text: read('--lanes-text'),
    };
  };
})();
