SELECT id from t1;
SELECT intcol1,charcol1 FROM t1 WHERE id = 'b79a6b6e-e6a5-11f1-9640-02fc00000001';
