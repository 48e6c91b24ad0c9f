'use strict';
/* Tables that sort, filter and search, by Tabulator; cells are text nodes, never HTML. */
(() => {
  const foretrace = (window.foretrace = window.foretrace || {});
  const ROW = 26; // px
  const MOST = 560; // px

  /** How a page draws cells of a column of its own, by the column's key: (column, row) => Element, with its `width`. */
  foretrace.cells = foretrace.cells || {};
  const [PADDING, ARROW] = [15, 29]; // px beside the words of a cell and of a head
  const [WIDEST, WIDEST_NAME] = [220, 340]; // px
  const MEASURED = 500; // rows whose words decide the width

  const isNumeric = (column) => column.form !== 'text' && column.form !== 'name';

  /** What a cell says; the note stands behind the value, or in its place where there is none. */
  function said(column, row) {
    const value = column.values[row];
    const note = column.notes ? column.notes[row] : '';
    if ((value === null || value === undefined) && note) return note;
    const shown = (column.form === 'number' || column.form === 'duration') && typeof value === 'number' ? value / column.divisor : value;
    return foretrace.words[column.form](shown) + note;
  }

  /** The number that the column's head gives the unit of; null for text and what is unknown. */
  function shownNumber(column, row) {
    const value = column.values[row];
    if (!isNumeric(column) || typeof value !== 'number' || Number.isNaN(value)) return null;
    if (column.form === 'percent') return value * 100;
    return value / column.divisor;
  }

  /** Order of two cells; what is unknown comes last whichever way the column is sorted. */
  function order(column, a, b, direction) {
    const [x, y] = [column.values[a], column.values[b]];
    const [noX, noY] = [x === null || x === undefined || x !== x, y === null || y === undefined || y !== y];
    if (noX || noY) return (noX - noY) * (direction === 'asc' ? 1 : -1) || a - b;
    if (typeof x === 'number') return x - y || a - b;
    return String(x).localeCompare(String(y), 'en', { numeric: true }) || a - b;
  }

  function head(column) {
    const element = document.createElement('span');
    element.append(column.title);
    if (column.unit) {
      const unit = document.createElement('span');
      unit.className = 'unit';
      unit.textContent = ` ${column.unit}`;
      element.append(unit);
    }
    if (column.help) element.title = column.help;
    return element;
  }

  function cell(column, row) {
    const element = document.createElement('span');
    element.textContent = said(column, row);
    if (column.form === 'name') {
      element.className = 'name';
      element.title = element.textContent;
    }
    return element;
  }

  /** How wide a column must be, from its words: measured on a canvas, which costs no layout of the page. */
  function widthOf(column, fonts, context) {
    context.font = fonts.text;
    // A head may take two lines: its longest word decides.
    const words = `${column.title} ${column.unit}`.split(' ');
    let width = Math.max(...words.map((word) => context.measureText(word).width)) + ARROW;
    context.font = column.form === 'name' ? fonts.name : fonts.text;
    const rows = Math.min(column.values.length, MEASURED);
    for (let row = 0; row < rows; row++) width = Math.max(width, context.measureText(said(column, row)).width + PADDING);
    return Math.ceil(Math.min(width, column.form === 'name' ? WIDEST_NAME : WIDEST));
  }

  /** The typefaces of the cells, as base.css sets them. */
  function fontsOf(place) {
    const style = getComputedStyle(place);
    const size = parseFloat(getComputedStyle(document.documentElement).fontSize) * 0.86;
    return { text: `${size}px ${style.getPropertyValue('--sans')}`, name: `${size * 0.9}px ${style.getPropertyValue('--mono')}` };
  }

  /**
   * The field above a column. Keys stay in it: Tabulator takes the character codes of ! " # $ for keys that scroll. What
   * is pasted or dropped into it counts as well as what is typed.
   */
  function filterField(cell, onRendered, success, cancel, { title }) {
    const field = Object.assign(document.createElement('input'), { type: 'search', spellcheck: false });
    field.setAttribute('aria-label', `filter ${title}`);
    field.style.width = '100%';
    for (const kind of ['keydown', 'keypress', 'keyup']) field.addEventListener(kind, (event) => event.stopPropagation());
    field.addEventListener('input', () => success(field.value));
    return field;
  }

  function columnOf(column, fonts, context, isLast) {
    const numeric = isNumeric(column);
    const width = widthOf(column, fonts, context);
    return {
      title: column.unit ? `${column.title} (${column.unit})` : column.title,
      field: column.key,
      titleFormatter: () => head(column),
      formatter: (each) => (foretrace.cells[column.key] || cell)(column, each.getData().id),
      hozAlign: numeric ? 'right' : 'left',
      headerHozAlign: numeric ? 'right' : 'left',
      sorter: (a, b, rowA, rowB, _, direction) => order(column, rowA.getData().id, rowB.getData().id, direction),
      headerSortStartingDir: numeric ? 'desc' : 'asc',
      headerSortTristate: true,
      headerFilter: filterField,
      headerFilterParams: { title: column.title },
      headerFilterFunc: (asked, _, data) => foretrace.passes(asked, shownNumber(column, data.id), said(column, data.id)),
      width,
      // The last column takes what is left, and never less than its words.
      minWidth: (foretrace.cells[column.key] || {}).width || (isLast ? width : 50),
    };
  }

  /**
   * Put a table into its place.
   * @param {HTMLElement} place
   * @param {{id: string, title: string, rows: number, columns: object[]}} table a table of the data block, see tables.py
   * @param {(row: number) => void} onPick
   * @returns {{tabulator: any, said: (key: string, row: number) => string, order: () => number[], ready: Promise<void>}}
   */
  foretrace.table = (place, table, onPick) => {
    const data = Array.from({ length: table.rows }, (_, id) => {
      const row = { id };
      for (const column of table.columns) row[column.key] = column.values[id];
      return row;
    });
    const tools = document.createElement('div');
    tools.className = 'grid-tools';
    const search = document.createElement('input');
    Object.assign(search, { type: 'search', placeholder: 'search this table', spellcheck: false });
    search.setAttribute('aria-label', `search ${table.title}`);
    const many = document.createElement('span');
    many.setAttribute('role', 'status');
    const hint = document.createElement('span');
    hint.className = 'hint';
    hint.textContent = 'A row highlights its events in the timeline. Above a column: words, or >5, <=3, 1..5.';
    tools.append(search, many, hint);
    const grid = document.createElement('div');
    place.replaceChildren(tools, grid);

    const height = table.rows * ROW + 78;
    const fonts = fontsOf(place);
    const context = document.createElement('canvas').getContext('2d');
    const tabulator = new window.Tabulator(grid, {
      data,
      columns: table.columns.map((column, i) => columnOf(column, fonts, context, i === table.columns.length - 1)),
      layout: 'fitDataStretch',
      height: height > MOST ? MOST : undefined,
      autoResize: false, // it lays out anew when a table first comes into sight, which takes the focus from a row
      placeholder: 'No row passes the filters.',
      columnDefaults: { resizable: 'header' },
      rowFormatter: (row) => {
        const element = row.getElement();
        element.tabIndex = 0;
        element.onkeydown = (event) => {
          if (event.key === 'Enter' && event.target === element) onPick(row.getData().id);
        };
      },
    });
    let width = 0;
    const fit = () => {
      const now = place.clientWidth;
      if (width && now && now !== width) tabulator.redraw();
      width = now || width;
    };
    tabulator.on('tableBuilt', () => new ResizeObserver(fit).observe(place));
    const tell = (shown) => {
      const rows = table.rows === 1 ? 'row' : 'rows';
      many.textContent = shown === table.rows ? `${shown} ${rows}` : `${shown} of ${table.rows} ${rows}`;
    };
    tell(table.rows);
    tabulator.on('dataFiltered', (_, rows) => tell(rows.length));
    tabulator.on('rowClick', (_, row) => onPick(row.getData().id));
    search.addEventListener('input', () => {
      const text = search.value.trim().toLowerCase();
      if (!text) tabulator.clearFilter(false);
      else {
        tabulator.setFilter((row) =>
          table.columns.some((column) => said(column, row.id).toLowerCase().includes(text)),
        );
      }
    });
    return {
      tabulator,
      said: (key, row) => said(table.columns.find((column) => column.key === key), row),
      order: () => tabulator.getData('active').map((row) => row.id),
      ready: new Promise((resolve) => {
        tabulator.on('tableBuilt', () => {
          const holder = grid.querySelector('.tabulator-tableholder');
          if (holder.scrollWidth > holder.clientWidth + 1) hint.textContent += ' More columns lie to the right: scroll sideways.';
          resolve();
        });
      }),
    };
  };
})();
