'use strict';
/* Rectangles and their names. Narrow rows are merged per pixel column, so that time to draw goes by pixels, not rows. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  const NARROW = 4; // device pixels up to which a row is drawn as pixels
  const FAINTEST = 0.4; // of a column in which something lies at all
  const LEAST_TEXT = 26; // pixels of a rectangle that gets a name
  const DIMMED = 0.28;
  const PAD = 4;
  const LEAST_LETTERS = 3; // of a name that is cut
  const LONGEST = 400; // characters of a label that are looked at
  const FONT = (foretrace.LANES_FONT = '11px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif');
  const WORK = / ([a-z][a-z_0-9]+)$/; // what tells elementwise<8> gelu from elementwise<8> mul
  const TAIL = /(?:::|: )([^:<(]{2,})$/; // the telling end of aten::mm, nn.Module: Linear_3, file.py(12): forward

  foretrace.LanesPainter = class LanesPainter {
    /** `endings`: whether labels that are short of room keep their last word. */
    constructor(model, layout, endings) {
      this.endings = endings;
      this.model = model;
      this.layout = layout;
      this.widths = new Map();
      this.buckets = new Map();
      this.texts = [];
      this.lines = []; // y and height of each line of pixels
      this.pixels = new Uint32Array(0);
      this.strip = document.createElement('canvas');
    }

    /** Draw all tracks that lie between `top` and `bottom`. `frame`: {view, left, width, shift, palette, marks}. */
    rows(ctx, frame, top, bottom) {
      this.buckets.clear();
      this.texts.length = 0;
      this._collect(frame, top, bottom);
      const dim = frame.marks.length ? DIMMED : 1;
      ctx.globalAlpha = dim;
      this._stretch(ctx, frame);
      for (const [key, rects] of this.buckets) {
        ctx.fillStyle = frame.palette.fills[Math.floor(key / 3)][key % 3];
        for (let i = 0; i < rects.length; i += 4) ctx.fillRect(rects[i], rects[i + 1], rects[i + 2], rects[i + 3]);
      }
      ctx.globalAlpha = dim === 1 ? 1 : 0.5;
      this._names(ctx, frame);
      ctx.globalAlpha = 1;
      if (frame.marks.length) this._marks(ctx, frame, top, bottom);
    }

    _collect(frame, top, bottom) {
      const { layout, model } = this;
      for (const group of layout.groups) {
        // Lanes drawn over each other would say little, and thousands of them take long.
        if (group.collapsed) continue;
        for (const lane of group.lanes) {
          if (layout.lanes[lane].from > bottom || layout.lanes[lane].to < top) continue;
          for (let track = model.firstTrack[lane]; track < model.firstTrack[lane + 1]; track++) {
            const y = layout.trackTop[track];
            const height = layout.trackHeight[track];
            if (y > bottom || y + height < top) continue;
            this._track(frame, track, y + frame.shift, height);
          }
        }
      }
    }

    /** Wide rows become rectangles; narrow ones pixels of a line that is stretched to the height of the track. */
    _track(frame, track, y, height) {
      const { model, buckets, texts } = this;
      const { left, width, ratio, palette } = frame;
      const wide = Math.round(width * ratio);
      const line = this._line(wide, y, height);
      const { pixels } = this;
      const base = line * wide;
      model.walk(track, frame.view, wide, (x0, x1, row, count, busy) => {
        const kind = model.kind[row];
        const shade = model.name[row] % 3;
        if (x1 - x0 < NARROW) {
          const cover = count === 1 ? 1 : FAINTEST + (1 - FAINTEST) * busy;
          const colour = palette.rgb[kind * 3 + (count === 1 ? shade : 0)] | (Math.round(cover * 255) << 24);
          const from = Math.max(0, count === 1 && x1 - x0 > 1 ? Math.round(x0) : Math.floor(x0));
          const to = Math.min(wide, Math.max(from + 1, Math.round(x1)));
          for (let x = from; x < to; x++) if (pixels[base + x] >>> 24 <= colour >>> 24) pixels[base + x] = colour;
          return;
        }
        const from = Math.max(-2, Math.round(x0)) / ratio;
        const to = Math.min(wide + 2, Math.round(x1)) / ratio;
        const key = kind * 3 + shade;
        let list = buckets.get(key);
        if (!list) buckets.set(key, (list = []));
        list.push(left + from, y, to - from - 1 / ratio, height);
        if (to - Math.max(0, from) >= LEAST_TEXT) texts.push(row, Math.max(0, from), Math.min(width, to), y, height);
      });
    }

    _line(wide, y, height) {
      const line = this.lines.length / 2;
      this.lines.push(y, height);
      if (this.pixels.length < wide * (line + 1)) {
        const more = new Uint32Array(wide * Math.max(32, 2 * line));
        more.set(this.pixels);
        this.pixels = more;
      }
      return line;
    }

    _stretch(ctx, frame) {
      const wide = Math.round(frame.width * frame.ratio);
      const count = this.lines.length / 2;
      if (!count) return;
      const { strip } = this;
      if (strip.width !== wide || strip.height < count) {
        strip.width = wide;
        strip.height = count;
      }
      const bytes = new Uint8ClampedArray(this.pixels.buffer, 0, 4 * wide * count);
      strip.getContext('2d').putImageData(new ImageData(bytes, wide, count), 0, 0);
      ctx.imageSmoothingEnabled = false;
      for (let i = 0; i < count; i++) {
        ctx.drawImage(strip, 0, i, wide, 1, frame.left, this.lines[2 * i], frame.width, this.lines[2 * i + 1]);
      }
      this.pixels.fill(0, 0, wide * count);
      this.lines.length = 0;
    }

    _names(ctx, frame) {
      const { texts, model } = this;
      ctx.font = FONT;
      ctx.textBaseline = 'middle';
      ctx.textAlign = 'left';
      ctx.fillStyle = frame.palette.text;
      for (let i = 0; i < texts.length; i += 5) {
        const room = texts[i + 2] - texts[i + 1] - 2 * PAD;
        const words = this.fit(ctx, model.name[texts[i]], room);
        if (words) ctx.fillText(words, frame.left + texts[i + 1] + PAD, texts[i + 3] + texts[i + 4] / 2 + 0.5);
      }
    }

    /** As much of a label as `room` pixels take, its end rather than its beginning; null where that says nothing. */
    fit(ctx, name, room) {
      const label = this.model.labels[name];
      if (this._width(ctx, label) <= room) return label.slice(0, LONGEST);
      const tail = TAIL.exec(label);
      const words = tail ? tail[1] : label.slice(0, LONGEST);
      const width = this._width(ctx, words);
      if (width <= room) return words;
      const work = this.endings ? WORK.exec(words) : null;
      if (work) return this._ending(ctx, words, work[1], room);
      let fits = Math.min(words.length - 1, Math.floor((room * words.length) / width));
      while (fits >= LEAST_LETTERS && this._width(ctx, `${words.slice(0, fits)}…`) > room) fits--;
      return fits >= LEAST_LETTERS ? `${words.slice(0, fits)}…` : null;
    }

    /** The end of a label, with as much before its last word as there is room for. */
    _ending(ctx, words, last, room) {
      let from = Math.max(1, words.length - Math.floor((room * words.length) / this._width(ctx, words)));
      while (words.length - from > last.length && this._width(ctx, `…${words.slice(from)}`) > room) from++;
      const shown = `…${words.slice(Math.min(from, words.length - last.length))}`;
      if (this._width(ctx, shown) <= room) return shown;
      return this._width(ctx, last) <= room ? last : null;
    }

    _width(ctx, words) {
      let width = this.widths.get(words);
      if (width === undefined) this.widths.set(words, (width = ctx.measureText(words.slice(0, LONGEST)).width));
      return width;
    }

    /** Rows that stand out, in full colour over the dimmed rest, each at least three pixels wide. */
    _marks(ctx, frame, top, bottom) {
      const { model, layout } = this;
      const { marks, view, left, width } = frame;
      const scale = width / (view.end - view.start);
      this.texts.length = 0;
      const outlined = [];
      for (let track = 0; track < layout.trackTop.length; track++) {
        const y = layout.trackTop[track];
        if (!(y <= bottom && y + layout.trackHeight[track] >= top)) continue;
        const [first, last] = model.range(track, view.start, view.end);
        let i = foretrace.firstWhere(0, marks.length, (p) => marks[p] >= first);
        let reach = -Infinity;
        for (; i < marks.length && marks[i] < last; i++) {
          const at = marks[i];
          const x0 = Math.max(-4, (model.starts[at] - view.start) * scale);
          const x1 = Math.min(width + 4, Math.max(x0 + 3, (model.ends[at] - view.start) * scale));
          if (x1 - reach < 1) continue;
          reach = x1;
          const row = model.order[at];
          ctx.fillStyle = frame.palette.fills[model.kind[row]][model.name[row] % 3];
          ctx.fillRect(left + x0, y + frame.shift, x1 - x0 - 0.5, layout.trackHeight[track]);
          outlined.push(left + x0, y + frame.shift, x1 - x0 - 0.5, layout.trackHeight[track]);
          const from = Math.max(0, x0);
          const to = Math.min(width, x1);
          if (to - from >= LEAST_TEXT) this.texts.push(row, from, to, y + frame.shift, layout.trackHeight[track]);
        }
      }
      ctx.strokeStyle = frame.palette.mark;
      ctx.lineWidth = 1.5;
      ctx.beginPath();
      for (let i = 0; i < outlined.length; i += 4) {
        ctx.rect(outlined[i], outlined[i + 1] + 0.5, outlined[i + 2], outlined[i + 3] - 1);
      }
      ctx.stroke();
      this._names(ctx, frame);
    }
  };
})();
