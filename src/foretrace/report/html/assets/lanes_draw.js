'use strict';
/* Everything of the canvas but the rows: bands, grid, arrows, selection, gutter and ruler. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});

  const SMALL = '10.5px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif';
  const BOLD = '600 11.5px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif';
  const MOST_ARROWS = 300; // in view, of rows that are not selected
  const ARROW_ROOM = 10; // pixels of width that an arrow may take before it fades
  const TICK = 110; // pixels between two ticks, about

  function clipped(ctx, words, room) {
    if (ctx.measureText(words).width <= room) return words;
    let low = 0;
    let high = words.length;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (ctx.measureText(`${words.slice(0, middle)}…`).width <= room) low = middle;
      else high = middle - 1;
    }
    return low ? `${words.slice(0, low)}…` : '';
  }

  /**
   * Draw one frame.
   * @param {CanvasRenderingContext2D} ctx in CSS pixels
   * @param {object} frame {view, left, width, full, height, top, ratio, palette, marks, selected, shown, all, range}
   *   `all`: whether arrows are drawn of rows besides `shown`
   */
  foretrace.drawLanes = (ctx, frame, model, layout, painter, axis) => {
    const { left, width, full, height, palette } = frame;
    const header = layout.header;
    ctx.globalAlpha = 1;
    ctx.fillStyle = palette.ground;
    ctx.fillRect(0, 0, full, height);
    const x = (time) => left + ((time - frame.view.start) / (frame.view.end - frame.view.start)) * width;
    const ticks = fittingTicks(ctx, frame, axis);

    ctx.save();
    ctx.beginPath();
    ctx.rect(left, header, width, height - header);
    ctx.clip();
    drawBands(ctx, frame, model, x, header);
    ctx.fillStyle = palette.grid;
    for (const tick of ticks) ctx.fillRect(Math.round(x(tick)), header, 1, height - header);
    const parts = layout.parts();
    for (const part of parts) {
      ctx.save();
      ctx.beginPath();
      ctx.rect(left, part.from, width, part.to - part.from);
      ctx.clip();
      frame.shift = part.shift;
      drawHeadings(ctx, frame, layout, part);
      painter.rows(ctx, frame, part.top, part.bottom);
      drawSelection(ctx, frame, model, layout, x, part);
      ctx.restore();
    }
    drawArrows(ctx, frame, model, layout, x);
    drawRange(ctx, frame, x, header, axis);
    ctx.restore();
    for (const part of parts) drawGutter(ctx, frame, model, layout, part);
    if (parts.length > 1) {
      ctx.fillStyle = palette.soft;
      ctx.fillRect(0, parts[1].from - 1, full, 1);
    }
    drawRuler(ctx, frame, model, layout, x, ticks, axis);
  };

  /** Ticks whose labels do not run into each other. */
  function fittingTicks(ctx, { view, width }, axis) {
    const span = view.end - view.start;
    ctx.font = SMALL;
    for (let count = Math.max(2, Math.round(width / TICK)); ; count--) {
      const ticks = axis.ticks(view.start, view.end, count);
      if (count <= 1 || ticks.length < 2) return ticks;
      const step = ticks[1] - ticks[0];
      const room = (step / span) * width - 10;
      if (ctx.measureText(axis.tick(ticks[ticks.length - 1], step, view.end)).width <= room) return ticks;
    }
  }

  function drawBands(ctx, frame, model, x, header) {
    const { palette, left, width, height } = frame;
    model.bands.forEach((band, i) => {
      const from = Math.max(left - 1, x(band.start));
      const to = Math.min(left + width + 1, x(band.end));
      if (to <= from) return;
      ctx.fillStyle = palette.band;
      ctx.globalAlpha = i % 2 ? 0.55 : 1;
      ctx.fillRect(from, header, to - from, height - header);
      ctx.globalAlpha = 1;
      ctx.fillStyle = palette.edge;
      ctx.fillRect(Math.round(from), header, 1, height - header);
      const next = model.bands[i + 1];
      if (!next || x(next.start) - to > 2) ctx.fillRect(Math.round(to) - 1, header, 1, height - header);
    });
  }

  function drawHeadings(ctx, frame, layout, part) {
    const { left, width } = frame;
    ctx.fillStyle = frame.palette.heading;
    for (const group of layout.groups) {
      if (group.height) ctx.fillRect(left, group.top + part.shift, width, group.height - 1);
    }
    ctx.fillStyle = frame.palette.grid;
    for (const lane of layout.lanes) if (lane.shown) ctx.fillRect(left, lane.to + part.shift - 2, width, 1);
  }

  function drawArrows(ctx, frame, model, layout, x) {
    const { from, to } = model.arrows;
    if (!from.length) return;
    const { view, palette } = frame;
    const faint = [];
    let crowded = false;
    for (let i = 0; frame.all && i < from.length && !crowded; i++) {
      const a = model.end(from[i]);
      const b = model.start[to[i]];
      if (Math.max(a, b) < view.start || Math.min(a, b) > view.end) continue;
      faint.push(from[i], to[i]);
      crowded = faint.length > 2 * MOST_ARROWS;
    }
    // What is scrolled away ends at the edge of its part.
    const edge = layout.view - layout.dockHeight;
    const place = (top, below) => {
      const y = layout.screen(top) + below;
      return top >= layout.dockTop ? y : Math.max(layout.header, Math.min(edge, y));
    };
    const line = (a, b) => {
      const p = layout.spot(a);
      const q = layout.spot(b);
      const x0 = x(Math.min(model.end(a), Math.max(model.start[a], model.start[b])));
      const x1 = x(model.start[b]);
      const down = q.top > p.top;
      const y0 = place(p.top, down ? p.height : 0);
      const y1 = place(q.top, down ? 0 : q.height);
      const bend = Math.max(14, Math.min(90, Math.abs(y1 - y0) / 2)) * (down ? 1 : -1);
      ctx.moveTo(x0, y0);
      ctx.bezierCurveTo(x0, y0 + bend, x1, y1 - bend, x1, y1);
      return [x1, y1, down ? -1 : 1];
    };
    const stroke = (pairs, colour, alpha, thick) => {
      ctx.strokeStyle = ctx.fillStyle = colour;
      ctx.globalAlpha = alpha;
      ctx.lineWidth = thick;
      ctx.beginPath();
      const heads = [];
      for (let i = 0; i < pairs.length; i += 2) heads.push(line(pairs[i], pairs[i + 1]));
      ctx.stroke();
      ctx.beginPath();
      for (const [hx, hy, way] of heads) {
        ctx.moveTo(hx, hy);
        ctx.lineTo(hx - 3.2, hy + way * 6);
        ctx.lineTo(hx + 3.2, hy + way * 6);
      }
      ctx.fill();
      ctx.globalAlpha = 1;
    };
    if (!crowded && faint.length) {
      // Many arrows in little room step back behind what they tie together.
      const room = Math.min(1, frame.width / (ARROW_ROOM * (faint.length / 2)));
      stroke(faint, palette.arrow, (frame.marks.length || frame.selected >= 0 ? 0.25 : 0.5) * Math.max(0.3, room), 1);
    }
    const strong = [];
    for (const row of frame.shown) {
      if (strong.length > 2 * MOST_ARROWS) break;
      strong.push(...model.ties(row, MOST_ARROWS).flat());
    }
    if (strong.length) stroke(strong, palette.accent, 0.95, 1.6);
  }

  function drawSelection(ctx, frame, model, layout, x, part) {
    const { selected, palette } = frame;
    if (selected < 0) return;
    const outline = (row, thick, colour) => {
      const { top, height } = layout.spot(row);
      if (top > part.bottom || top + height < part.top) return;
      const x0 = Math.max(frame.left - 4, x(model.start[row]));
      const x1 = Math.min(frame.left + frame.width + 4, Math.max(x0 + 3, x(model.end(row))));
      ctx.strokeStyle = colour;
      ctx.lineWidth = thick;
      ctx.strokeRect(x0 - 0.5, top + part.shift - 0.5, x1 - x0, height + 1);
    };
    for (const tie of model.ties(selected, MOST_ARROWS)) {
      for (const other of tie) if (other !== selected) outline(other, 1.2, palette.accent);
    }
    outline(selected, 4, palette.ground);
    outline(selected, 2.2, palette.accent);
  }

  function drawRange(ctx, frame, x, header, axis) {
    if (!frame.range) return;
    const x0 = x(frame.range.start);
    const x1 = x(frame.range.end);
    ctx.fillStyle = ctx.strokeStyle = frame.palette.accent;
    ctx.globalAlpha = 0.13;
    ctx.fillRect(x0, header, x1 - x0, frame.height - header);
    ctx.globalAlpha = 1;
    ctx.fillRect(Math.round(x0), header, 1, frame.height - header);
    ctx.fillRect(Math.round(x1), header, 1, frame.height - header);
    const words = axis.length(frame.range.end - frame.range.start);
    ctx.font = BOLD;
    const room = ctx.measureText(words).width + 12;
    const middle = Math.min(frame.left + frame.width - room / 2, Math.max(frame.left + room / 2, (x0 + x1) / 2));
    ctx.fillRect(middle - room / 2, header + 4, room, 18);
    ctx.fillStyle = frame.palette.ground;
    ctx.textAlign = 'center';
    ctx.textBaseline = 'middle';
    ctx.fillText(words, middle, header + 13.5);
    ctx.textAlign = 'left';
  }

  function drawGutter(ctx, frame, model, layout, part) {
    const { palette } = frame;
    const { shift, from, to } = part;
    const room = layout.narrow ? frame.full : layout.gutter;
    ctx.save();
    ctx.beginPath();
    ctx.rect(0, from, frame.full, to - from);
    ctx.clip();
    if (!layout.narrow) {
      ctx.fillStyle = palette.gutter;
      ctx.fillRect(0, from, room, to - from);
    }
    ctx.textBaseline = 'middle';
    ctx.textAlign = 'left';
    for (const group of layout.groups) {
      const y = group.top + shift;
      if (!group.height || y > to || y + group.height < from) continue;
      ctx.fillStyle = palette.heading;
      if (!layout.narrow) ctx.fillRect(0, y, room, group.height - 1);
      const middle = y + group.height / 2;
      ctx.fillStyle = palette.soft;
      ctx.beginPath();
      if (group.collapsed) {
        ctx.moveTo(10, middle - 4);
        ctx.lineTo(15, middle);
        ctx.lineTo(10, middle + 4);
      } else {
        ctx.moveTo(8, middle - 2.5);
        ctx.lineTo(16, middle - 2.5);
        ctx.lineTo(12, middle + 2.5);
      }
      ctx.fill();
      ctx.fillStyle = palette.ink;
      ctx.font = BOLD;
      ctx.fillText(clipped(ctx, group.title, frame.full - 30), 22, middle + 0.5);
    }
    layout.lanes.forEach((lane, i) => {
      const y = lane.top + shift;
      if (!lane.shown || y > to || y + lane.height < from) return;
      const { title, subtitle } = model.lanes[i];
      if (layout.narrow) {
        ctx.font = SMALL;
        ctx.fillStyle = palette.soft;
        const whole = subtitle ? `${title}  ·  ${subtitle}` : title;
        const said = clipped(ctx, whole, room - 12);
        // Arrows pass behind it.
        ctx.strokeStyle = palette.ground;
        ctx.lineWidth = 3;
        ctx.lineJoin = 'round';
        ctx.strokeText(said, 6, y - 8);
        ctx.fillText(said, 6, y - 8);
        return;
      }
      ctx.font = '11.5px ui-sans-serif, system-ui, "Segoe UI", Roboto, sans-serif';
      ctx.fillStyle = palette.ink;
      // The title of a tall lane stays in sight while the lane does.
      const at = Math.min(Math.max(y, from + 4), y + lane.height - 28);
      ctx.fillText(clipped(ctx, title, room - 30), 22, at + 8);
      ctx.font = SMALL;
      ctx.fillStyle = palette.soft;
      if (subtitle) ctx.fillText(clipped(ctx, subtitle, room - 30), 22, at + 22);
      ctx.fillStyle = palette.grid;
      ctx.fillRect(0, lane.to + shift - 2, room, 1);
    });
    ctx.restore();
    ctx.fillStyle = palette.edge;
    if (!layout.narrow) ctx.fillRect(layout.gutter - 1, from, 1, to - from);
  }

  function drawRuler(ctx, frame, model, layout, x, ticks, axis) {
    const { palette, left, width, full, view } = frame;
    ctx.fillStyle = palette.gutter;
    ctx.fillRect(0, 0, full, layout.header);
    ctx.fillStyle = palette.edge;
    ctx.fillRect(0, layout.header - 1, full, 1);
    ctx.textBaseline = 'middle';
    ctx.font = SMALL;
    if (!layout.narrow) {
      ctx.fillStyle = palette.soft;
      ctx.fillText(`${axis.length(view.end - view.start)} in view`, 22, layout.ruler / 2 + 0.5);
      ctx.fillStyle = palette.edge;
      ctx.fillRect(layout.gutter - 1, 0, 1, layout.header);
    }
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, 0, width, layout.header);
    ctx.clip();
    const step = ticks.length > 1 ? ticks[1] - ticks[0] : view.end - view.start;
    for (const tick of ticks) {
      const at = Math.round(x(tick));
      ctx.fillStyle = palette.edge;
      ctx.fillRect(at, layout.ruler - 7, 1, 6);
      ctx.fillStyle = palette.soft;
      const words = axis.tick(tick, step, view.end);
      if (at + 4 + ctx.measureText(words).width < left + width) ctx.fillText(words, at + 4, layout.ruler / 2 + 0.5);
    }
    const y = layout.ruler;
    const tall = layout.header - layout.ruler - 1;
    model.bands.forEach((band, i) => {
      const from = Math.max(left, x(band.start));
      const to = Math.min(left + width, x(band.end));
      if (to - from < 1) return;
      ctx.fillStyle = palette.band;
      ctx.globalAlpha = i % 2 ? 0.55 : 1;
      ctx.fillRect(from, y, to - from, tall);
      ctx.globalAlpha = 1;
      ctx.fillStyle = palette.edge;
      ctx.fillRect(Math.round(from), y, 1, tall);
      if (to - from < 30) return;
      ctx.fillStyle = palette.ink;
      ctx.fillText(clipped(ctx, band.label, to - from - 10), from + 6, y + tall / 2 + 0.5);
    });
    ctx.restore();
  }
})();
